# Appends to a file, with fsync after each of 1,250 batches of 8 KiB writes.
set mode quit firstdone
set $dir=/tmp
set $nthreads=1
set $iosize=8k
set $filesize=0
set $count=1250
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nthreads,dirwidth=1024,prealloc=100
define process name=micro1,instances=1 {
  thread name=micro1,memsize=10m,instances=$nthreads {
    flowop appendfile name=append1,filesetname=bigfileset,iosize=$iosize,iters=16
    flowop fsync name=sync1,filesetname=bigfileset
    flowop finishoncount name=finish1,value=$count,target=sync1
  }
}
run
