# Writes one new file by appending, and ends after 1 GiB.
set mode quit firstdone
set $dir=/tmp
set $nthreads=1
set $iosize=1m
set $filesize=0
set $count=1g
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc=0
define process name=micro,instances=1 {
  thread name=micro,memsize=10m,instances=$nthreads {
    flowop createfile name=create,filesetname=bigfileset,fd=1
    flowop appendfile name=append,fd=1,iosize=$iosize,iters=1024
    flowop closefile name=close,fd=1
    flowop deletefile name=delete,filesetname=bigfileset
    flowop finishonbytes name=finish,value=$count
  }
}
run
