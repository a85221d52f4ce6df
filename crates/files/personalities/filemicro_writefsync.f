# Appends to a file, with fsync after each of 1,250 batches of 8 KiB writes.
set mode quit firstdone
set $dir=/tmp
set $nthreads=1
set $iosize=8k
set $filesize=0
set $count=1250
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc=100
define process name=micro,instances=1 {
  thread name=micro,memsize=10m,instances=$nthreads {
    flowop appendfile name=append,filesetname=bigfileset,iosize=$iosize,iters=16
    flowop fsync name=sync,filesetname=bigfileset
    flowop finishoncount name=finish,value=$count,target=sync
  }
}
run
