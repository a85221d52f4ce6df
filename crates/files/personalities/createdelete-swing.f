# Two groups of threads take turns: one creates files, the other deletes them.
set $dir=/tmp
set $nfiles=10000
set $meandirwidth=100
set $meanfilesize=16k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=8
set $iosize=1m
set $count=100
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=50
define process name=swing1,instances=1 {
  thread name=creator1,memsize=10m,instances=$nthreads {
    flowop createfile name=create1,filesetname=bigfileset,fd=1
    flowop writewholefile name=write1,fd=1,iosize=$iosize
    flowop closefile name=close1,fd=1
    flowop sempost name=created1,value=1,target=candelete1,blocking
    flowop wakeup name=tell1,target=watch1
  }
  thread name=deleter1,memsize=10m,instances=$nthreads {
    flowop semblock name=candelete1,value=1,highwater=$count
    flowop deletefile name=delete1,filesetname=bigfileset
  }
  thread name=watcher1,memsize=1m,instances=1 {
    flowop block name=watch1
    flowop statfile name=stat1,filesetname=bigfileset
  }
}
run 60
